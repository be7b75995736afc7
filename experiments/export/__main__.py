from experiments import cli
from experiments.export.command import Args, main

if __name__ == "__main__":
    cli.run_command(main, Args, prog="python -m experiments.export")
