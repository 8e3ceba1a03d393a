"""``bigclf submit``: the same job file as ``bigclf run``, done by a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import click

from bigclf.cli.jobs import driver
from bigclf.cli.jobs.steps import read_job
from bigclf.cli.run import carry_out, prepare, require_possible
from bigclf.cli.shared import terminal

_path = click.Path(exists=True, dir_okay=False)


@click.command("submit", short_help="Run a job file on a Dask cluster.")
@click.argument("job", metavar="JOB.yaml")
@click.option("--scheduler", required=True, metavar="ADDRESS", help="Where the Dask scheduler listens: tcp://HOST:8786"
              " or tls://HOST:8786.")  # fmt: skip
@click.option("--tls-ca-file", type=_path, help="Certificate authority that signed the cluster's certificates.")
@click.option("--tls-cert", type=_path, help="Certificate of this machine.")
@click.option("--tls-key", type=_path, help="Private key of this machine. Default: as in Dask's configuration.")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a key: --set method.C=10")
@click.option("--resume", is_flag=True, help="Continue a run that was interrupted.")
@click.option("--detach", is_flag=True, help="Run in the background; `bigclf inspect RUN` shows its progress.")
@click.option("--dry-run", is_flag=True, help="Print the resolved job and its commands; run nothing.")
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(
    ctx: click.Context, job: str, scheduler: str, changes: tuple[str, ...], resume: bool, detach: bool, dry_run: bool,
    overwrite: bool, as_json: bool, tls_ca_file: str | None, tls_cert: str | None, tls_key: str | None,
) -> None:  # fmt: skip
    """Run a job file on the Dask cluster at ADDRESS.

    The model is bit-for-bit identical to that of `bigclf run`. The cluster's workers do the training, sweeps, paths and
    evaluation; this machine does the conversion and prediction. Every worker must see the data under the paths in the
    job, and the run directory. All machines need the same versions of bigclf, numba, numpy, pyarrow and Python.
    """
    read = read_job(job)
    read.override(changes)
    read.on_cluster(scheduler)
    if tls_ca_file or tls_cert or tls_key:
        _require_tls(scheduler, tls_ca_file, tls_cert, tls_key)
    steps = prepare(ctx, read, {"resume": resume, "overwrite": overwrite, "as_json": as_json and not detach})
    with contextlib.ExitStack() as stack:
        if not dry_run:
            from bigclf.cluster.link import certificates

            require_possible(steps, resume)
            stack.enter_context(certificates(tls_ca_file, tls_cert, tls_key))
            _look(scheduler)
        if detach and not dry_run:
            begun = driver.start(ctx, read.run_dir or driver.default_directory(job))
            _tell(begun, as_json)
            return
        again = terminal.command_line(ctx, resume=True, overwrite=False)
        carry_out(ctx, read, steps, again, dry_run=dry_run, as_json=as_json)


def _require_tls(scheduler: str, *given: str | None) -> None:
    if not scheduler.startswith("tls://"):
        raise click.UsageError(f"--tls-... has no effect with {scheduler}; an address with TLS begins with tls://")
    if not all(given):
        raise click.UsageError("--tls-ca-file, --tls-cert and --tls-key go together: one is missing")


def _look(scheduler: str) -> None:
    """Refuse a cluster that is not there or that runs other versions, before anything is done.

    Raises
    ------
    ClusterError : see ``bigclf.cluster.cluster_survey``.
    """
    from bigclf.cli.doctor import quiet
    from bigclf.cluster.cluster_survey import require_alike
    from bigclf.cluster.link import connect

    with quiet("distributed"), contextlib.closing(connect(scheduler)) as link:
        workers = require_alike(link.client)
    if not workers:
        terminal.say("note:", f"there is no worker at {scheduler} yet; the run waits for one", "yellow")


def _tell(begun: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        terminal.emit_json(begun)
        return
    terminal.heading("running in the background", f"process {begun['pid']} on {begun['host']}")
    terminal.facts([("run", begun["run"]), ("log", begun["log"])], indent="  ")
    look, stop = f"bigclf inspect {begun['run']}", f"kill {begun['pid']}"
    click.echo(f"  next: {click.style(look, bold=True)}; to stop it: {click.style(stop, bold=True)}")
