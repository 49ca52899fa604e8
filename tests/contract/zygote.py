"""Runs command lines, each in a process of its own that is forked from this one: imports are paid for once.

Reads a JSON object a line (arguments, environment, cwd) and answers with one (code, stdout, stderr).
"""

import json
import os
import sys
import tempfile
import traceback


def main() -> None:
    """Until standard input ends."""
    from gateway.cli import COMMANDS, parser
    from gateway.cli import main as command

    parser()  # imports every command
    assert COMMANDS
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if not child:
                _run(command, asked, out.fileno(), err.fileno())
            _, status = os.waitpid(child, 0)
            told = {"code": os.waitstatus_to_exitcode(status)}
            for name, file in (("stdout", out), ("stderr", err)):
                file.seek(0)
                told[name] = file.read().decode("utf-8", "replace")
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def _run(command, asked, out: int, err: int) -> None:
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.environ.clear()
        os.environ.update(asked["environment"])
        if asked["cwd"]:
            os.chdir(asked["cwd"])
        sys.argv = ["packhorse", *asked["arguments"]]
        code = command(asked["arguments"])
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
