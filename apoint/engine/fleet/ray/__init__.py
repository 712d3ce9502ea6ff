"""The backend `ray`: groups of replicas as tasks on an existing Ray cluster.

Each group is one Ray task with one CPU, which runs `work`. It reports to a mailbox, a small actor on the
machine that started the fleet; the answer to each report says whether to save and stop. Ray itself retries
nothing: a task whose process or machine is gone is reported as lost, and the fleet submits its group again.

Each task finds out how its run folders are returned:

- If it sees the folder of runs, which holds a marker with a random name and content, it writes there.
- If not, it trains in a temporary folder and sends the run folder as it is after each checkpoint and at the
  end, as a tar of plain files, which is unpacked next to its destination and renamed. While a run folder is
  being received, the receiving process holds its lock, and its status names that process. A group that is
  submitted again takes along the folders as they were last sent, and so resumes from the last checkpoint.

The machines of the cluster need the same apoint, torch and numpy (checked), and the data, at the same
`data_root` or where datasets are looked for there. The user's files, those that the recipe names and those
that register ingredients, are sent along by content; modules that were imported by name must be installed
there.

Whether the cluster requires authentication is tested, not asked: a process without a token makes a harmless
request at the given address. If it is answered, the cluster is open to anyone who can reach it. Only this
address is tested; it is not known here whether every machine of the cluster is as strict, or whether the
connection is intercepted. Beyond Ray's documented interface, this uses its client for the cluster's head, its
switch for messages, its switch for machines without clusters, and its functions that find a local cluster
and reread the authentication mode.

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
