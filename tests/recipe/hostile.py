"""Recipes that mean harm, each with the line on which it must be refused."""

GOOD = "data: digits\nmodel: mlp\nepochs: 1\n"
_CANARY = "open('canary', 'w')"
_BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
_MERGES = "b0: &b0 {k: v}\n" + "".join(
    f"b{level}: &b{level}\n  <<: [{', '.join([f'*b{level - 1}'] * 9)}]\n" for level in range(1, 10)
)


def _line_4(text: str) -> tuple[str, int]:
    return GOOD + text, 4


TAGS = {
    "python object": _line_4(f'init: !!python/object/apply:eval ["{_CANARY}"]\n'),
    "python system": _line_4('init: !!python/object/apply:os.system ["touch canary"]\n'),
    "python new": _line_4("init: !!python/object/new:os.system [touch canary]\n"),
    "python name": _line_4("init: !!python/name:os.system\n"),
    "python name, quoted": _line_4('init: !!python/name:os.system ""\n'),
    "python module": _line_4("init: !!python/module:antigravity\n"),
    "python module, quoted": _line_4("init: !!python/module:antigravity ''\n"),
    "python tuple": _line_4("vary: !!python/tuple [init]\n"),
    "python as a key": _line_4("!!python/name:os.system init: he\n"),
    "python, whole tag": _line_4(f'init: !<tag:yaml.org,2002:python/object/apply:eval> ["{_CANARY}"]\n'),
    "python under a handle": (
        f'%TAG ! tag:yaml.org,2002:python/\n---\n{GOOD}init: !object/apply:eval ["{_CANARY}"]\n',
        6,
    ),
    "python in a block text": _line_4("description: !!python/object/apply:eval |\n  1 + 1\n"),
    "own tag": _line_4("init: !include /etc/passwd\n"),
    "environment tag": _line_4("init: !ENV ${HOME}\n"),
    "text tag": _line_4("name: !!str 5\n"),
    "number tag": _line_4('epochs: !!int "5"\n'),
    "binary tag": _line_4("init: !!binary aGU=\n"),
    "set tag": _line_4("probes: !!set {a, b}\n"),
    "omap tag": _line_4("probes: !!omap [a: 1]\n"),
    "unresolved tag": _line_4("init: ! he\n"),
    "tag without end": _line_4("init: !<tag\n"),
    "unknown handle": _line_4("init: !x!he y\n"),
}

STRUCTURE = {
    "billion laughs": (_BILLION, 1),
    "merge bomb": (_MERGES, 1),
    "alias of itself": _line_4("probes: &loop {a: *loop}\n"),
    "alias of nothing": _line_4("init: *nothing\n"),
    "alias as a key": _line_4("? *nothing\n: 1\n"),
    "anchor": _line_4("init: &x he\n"),
    "anchor on a key": _line_4("&x init: he\n"),
    "merge key": _line_4("<<: {epochs: 2}\n"),
    "merge key inside": (GOOD + "loss:\n  name: mse\n  <<: {reduction: sum}\n", 6),
    "duplicate key": _line_4("epochs: 2\n"),
    "duplicate key inside": _line_4("loss: {name: mse, name: mse}\n"),
    "duplicate key, quoted": _line_4('"epochs": 2\n'),
    "deep list": _line_4("augment: " + "[" * 100_000 + "\n"),
    "deep mapping": _line_4("augment: " + "{a: " * 100_000 + "\n"),
    "deep block list": (GOOD + "augment:\n" + "- " * 100_000 + "\n", 5),
    "deep keys": _line_4("? " * 100_000 + "\n"),
    "deep, closed": _line_4("augment: " + "[" * 900 + "]" * 900 + "\n"),
    "key that is a list": _line_4("[a, b]: 1\n"),
    "key that is a mapping": _line_4("{a: b}: 1\n"),
    "second document": (GOOD + "---\n" + GOOD, 4),
    "many documents": (GOOD + "---\n" * 10_000, 4),
    "tab for indentation": (GOOD + "loss:\n\tname: mse\n", 5),
    "unknown version": ("%YAML 9.9\n---\n" + GOOD, 1),
    "unknown directive": ("%" * 10_000 + "\n" + GOOD, 1),
    "open bracket": (GOOD + "augment: [flip\n", 5),
    "open quote": (GOOD + 'name: "x\n', 5),
    "many keys": ("".join(f"k{number}: 1\n" for number in range(60_000)), None),
    "many items": _line_4("vary: [" + "init, " * 100_000 + "init]\n"),
    "many items, short": _line_4("vary: [" + "1," * 400_000 + "1]\n"),
}

CHARACTERS = {
    "NUL": _line_4("name: a\0b\n"),
    "NUL in a key": _line_4("na\0me: a\n"),
    "NUL by escape": _line_4('name: "a\\0b"\n'),
    "NUL by escape in a key": _line_4('"na\\0me": a\n'),
    "NUL in a path": _line_4('weights: {file: "a\\0b"}\n'),
    "escape character": _line_4("name: a\x1b[2Jb\n"),
    "bell": _line_4("name: a\x07\n"),
    "half of a surrogate pair": _line_4('description: "\\ud800"\n'),
    "half of a surrogate pair, other": _line_4('description: "\\udfff"\n'),
    "no character": _line_4("name: \uffff\n"),
    "escape of no character": _line_4('description: "\\UFFFFFFFF"\n'),
    "escape out of range": _line_4('description: "\\U00110000"\n'),
    "unknown escape": _line_4('name: "\\q"\n'),
    "C1 control": _line_4("name: a\x9b2J\n"),
}

NUMBERS = {
    "5,000 digits": _line_4("batch_size: " + "9" * 5000 + "\n"),
    "5,000 digits, negative": _line_4("batch_size: -" + "9" * 5000 + "\n"),
    "100,000 digits": _line_4("batch_size: " + "9" * 100_000 + "\n"),
    "5,000 digits in a list": _line_4("vary: [" + "9" * 5000 + "]\n"),
    "5,000 digits after the point": _line_4("batch_size: 2.5" + "9" * 5000 + "\n"),
    "5,000 digits for a float": _line_4("layer_decay: " + "9" * 5000 + "\n"),
    "200 digits for a float": _line_4("layer_decay: " + "9" * 200 + "\n"),
    "a huge exponent": _line_4("optimizer: {name: sgd, lr: 1e999999999}\n"),
    "a huge length": _line_4("evaluate_every: 1e999 steps\n"),
    "5,000 digits of a length": _line_4("evaluate_every: " + "9" * 5000 + " steps\n"),
    "not a number": _line_4("layer_decay: .nan\n"),
    "infinite": _line_4("layer_decay: .inf\n"),
    "beyond 64 bits": _line_4("batch_size: 9223372036854775808\n"),
    "padding beyond memory": _line_4("augment: [{name: crop, padding: 100000000}]\n"),
    "truth as a number": _line_4("batch_size: true\n"),
}

VALUES = {
    "hydra target": _line_4("_target_: os.system\n"),
    "hydra target inside": _line_4("loss: {_target_: os.system, command: touch canary}\n"),
    "template": _line_4("name: '{{ 7 * 7 }}'\n"),
    "interpolation": _line_4("name: ${oc.env:HOME}\n"),
    "shell": _line_4("name: $(touch canary)\n"),
    "name with a slash": _line_4("name: ../../etc\n"),
    "very long name": _line_4("name: " + "a" * 10_000 + "\n"),
    "very long unknown key": _line_4("k" * 1000 + ": 1\n"),
    "list for a name": _line_4("loss: [1, 2, 3]\n"),
    "very long list for a name": _line_4("loss: [" + "aaaaaaaaaa, " * 5000 + "]\n"),
    "unknown loss": _line_4("loss: __import__('os').system('touch canary')\n"),
}

ALL = {**TAGS, **STRUCTURE, **CHARACTERS, **NUMBERS, **VALUES}
"""By name: the text, and the line that the refusal must name (None: any line)."""
