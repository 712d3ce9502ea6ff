"""The backend `ray`: groups of replicas as tasks on a Ray cluster that is there already.

Every group is one Ray task with one CPU, and `work` is what it does. What it reports goes to a mailbox, a
small actor beside whoever started the fleet; the answer to each report says whether to save and leave. Ray
tries nothing again by itself: a task whose process or machine is gone is reported as lost, and the fleet
submits its group once more.

How run folders come back is found out by each task:

- It sees the folder of runs: there is a marker in it with a random name and content. Then it writes there.
- It does not. Then it trains in a temporary folder and sends the run folder as it is after each checkpoint
  and at the end, as a tar of plain files, which is unpacked beside its place and renamed. While a run folder
  comes in, the process that receives it holds its lock and its status names that process. A group that is
  submitted again takes the folders along as they were last sent, and so goes on from the last checkpoint.

What the machines of the cluster need: the same apoint, torch and numpy (checked), and the data, at the same
`data_root` or wherever datasets are looked for there. Files of the user's, those that the recipe names and
those that register ingredients, are sent along by content; modules that were imported by name must be
installed there.

Whether the cluster asks for authentication is tried, not asked: a process without a token makes a harmless
request at the address given. If it is answered, the cluster is open to anyone who reaches it. Only this
address is tried; that every machine of the cluster is as careful, and that nobody listens on the way, is not
known here. Beyond Ray's documented interface this uses its client for the cluster's head, its switch for
messages, its switch for machines without clusters, and its functions that find a local cluster and read the
authentication mode anew.

    backend     the fleet's side: submits groups, hears what they report
    arriving    a submitted group, and the run folders that it sends
    mailbox     the actor between the two, and what a task begins with
    connection  the way to the cluster, and whether it is open to anyone
    job         what a task is given
    site        the cluster's side: where a group is trained, and what it sends
    folders     run folders on their way
"""

from apoint.engine.fleet.ray.backend import RayBackend

__all__ = ["RayBackend"]
