"""The command line: parse, one library call, print.

Results go to stdout, messages and progress to stderr. Errors are one line and an exit code: 0 ok, 1 internal error,
2 usage or bad parameter, 3 query not allowed, 4 budget exhausted, 5 data does not fit the declared schema, 6 engine
or extra missing.

    design       design a certified mechanism for a question about epsilon, delta, eta and D
    compare      compare our mechanisms with those of the literature
    plan         search for the best mechanism for a number of answers; compute what answers of a mechanism cost
    nonnegative  make a signed mechanism never negative
    certify      prove a saved mechanism again
    release      add noise to a finished table of counts
    audit        run the sampler and test its draws against the certificate
    ptable       measure, design and write p-tables of the cell-key method
    figures      draw the paper's figures, with our mechanisms added
    init         propose a configuration file
    inspect      show how the data fits the declared schema
    count        ask a count query and pay for the answer
    publish      publish tables that add up, or check a published folder
    budget       show what is left of a budget, or add to it
    ledger       check, read, back up and restore the ledger
    serve        run the HTTP service
    keys         API keys of the service: add, list and revoke
    demo         show the whole workflow on an invented census
    confirmation  questions about the guesses of a configuration, for init --confirm
    bounds_table  the choices of contribution bounds as a table and a chart, for init and inspect
    output       helpers that all commands share: common options, printing, progress
"""

from __future__ import annotations

import io
import os
import signal
import sys

import click

import countveil
from countveil.cli.audit import audit
from countveil.cli.budget import budget
from countveil.cli.certify import certify
from countveil.cli.compare import compare
from countveil.cli.count import count
from countveil.cli.demo import demo
from countveil.cli.design import design
from countveil.cli.figures import figures
from countveil.cli.init import init
from countveil.cli.inspect import inspect
from countveil.cli.keys import keys
from countveil.cli.ledger import ledger
from countveil.cli.nonnegative import nonnegative
from countveil.cli.output import Group
from countveil.cli.plan import plan
from countveil.cli.ptable import ptable
from countveil.cli.publish import publish
from countveil.cli.release import release
from countveil.cli.serve import serve
from countveil.errors import CountveilError


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(countveil.__version__, prog_name="countveil")
def cli() -> None:
    """Publish counts that protect the people counted.

    Every released number is an integer, never negative, never more than D from the truth, exactly right with a
    probability that you know, unbiased from a stated count upwards (3 for one answer at epsilon 1 and delta 1e-6),
    and carries a proved (epsilon, delta) guarantee that holds for every dataset.

    \b
    Examples:
      countveil demo                                  try it on an invented census
      countveil design --epsilon 1 --delta 1e-6       a mechanism for a target: the largest eta found
      countveil design --epsilon 1.1 --eta 0.5 -D 8   least delta for the paper's parameters
      countveil compare --epsilon 1 --delta 1e-6      against geometric, discrete Gaussian, ...
      countveil figures --out figures                 the paper's figures, with our mechanisms added
      countveil plan --epsilon 3 --delta 1e-6 --answers 30
      countveil nonnegative signed.json -o mechanism.json
      countveil certify mechanism.json                prove a saved mechanism again
      countveil init people.parquet --unit person_id  propose a countveil.toml
      countveil count "SELECT region, count(*) FROM people GROUP BY region" --dry-run
      countveil publish census -o out                 many tables, one guarantee, everything adds up
      countveil budget people
      countveil keys add alice --answers 10           and: countveil serve
      countveil release table.csv --column n -m mechanism.json -o noisy.csv
      countveil ptable audit ptable.txt --epsilon 1   what a p-table of the cell-key method protects
    """


for command in (
    design,
    compare,
    plan,
    nonnegative,
    certify,
    release,
    audit,
    ptable,
    figures,
    init,
    inspect,
    count,
    publish,
    budget,
    ledger,
    serve,
    keys,
    demo,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line. Every failure is one line on stderr, with the exit code for its kind.

    A group without a command shows its help on stderr.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shows ? instead of failing
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stop)  # SystemExit lets temporary files be removed
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except CountveilError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "countveil"
        _fail(f"{' '.join(error.format_message().split())} See: {where} --help", 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("COUNTVEIL_TRACE"):
            raise
        _fail(f"internal error ({type(error).__name__}); set COUNTVEIL_TRACE=1 to see the traceback, and report it", 1)


def _stop(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _fail(message: str, code: int) -> None:
    click.echo(f"countveil: {message}", err=True)
    sys.exit(code)
