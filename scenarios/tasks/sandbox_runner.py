"""Runs inside the sandbox only: limits its own process, then runs /program.py or calls one of its functions.

Arguments: JSON limits by rlimit name; the function's name ("": none, the program reads and prints by itself).
A function is called with each JSON list of arguments on standard input; each result is a line of JSON. What
is expected is not known here, so that a program can only win by computing it.
"""

import json
import os
import resource
import sys


class Nowhere:
    """A standard output that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def main() -> None:
    """See the module."""
    limits, name = json.loads(sys.argv[1]), sys.argv[2]
    for limit, value in limits.items():
        resource.setrlimit(getattr(resource, limit), (value, value))
    sys.argv = ["/program.py"]
    with open("/program.py", "rb") as file:
        program = compile(file.read(), "/program.py", "exec")
    if not name:
        exec(program, {"__name__": "__main__"})
        return
    cases = json.load(sys.stdin)
    output = os.fdopen(os.dup(1), "w")
    sys.stdout = Nowhere()
    namespace: dict[str, object] = {"__name__": "program"}
    exec(program, namespace)
    function = namespace.get(name)
    for arguments in cases:
        try:
            line = json.dumps({"value": function(*arguments)}, allow_nan=False)  # type: ignore[operator]
        except Exception as error:
            line = json.dumps({"error": type(error).__name__})
        output.write(line + "\n")
        output.flush()


if __name__ == "__main__":
    main()
