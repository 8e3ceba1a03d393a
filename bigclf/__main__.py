"""``python -m bigclf``: the command line."""

from bigclf.cli import main

if __name__ == "__main__":
    main(prog_name="bigclf")
