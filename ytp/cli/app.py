"""The group of all verbs, which loads a verb's module when the verb is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import click
from click.shell_completion import CompletionItem

from ytp._version import __version__
from ytp.cli.guard import Failure, GuardedGroup

__all__ = ["cli"]


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a command lives and what the list of commands says of it."""

    module: str
    summary: str
    attribute: str = "command"
    extra: str = "cli"


VERBS = {
    "tail": Verb("ytp.cli.tail", "Print the last messages, and new ones as they come."),
    "cat": Verb("ytp.cli.cat", "Write payloads as they are, for other programs."),
    "stat": Verb("ytp.cli.stat", "Sizes, peers and channels of a file."),
    "hz": Verb("ytp.cli.hz", "Messages a second, by channel."),
    "top": Verb("ytp.cli.top", "The busiest channels, live."),
    "cp": Verb("ytp.cli.cp", "Copy messages into another file."),
    "replay": Verb("ytp.cli.replay", "Copy messages at the pace at which they were written."),
    "record": Verb("ytp.cli.record", "Append what comes on standard input."),
    "bridge": Verb("ytp.cli.bridge", "Join buses of several hosts: serve one, follow one.", extra="zmq"),
    "verify": Verb("ytp.cli.verify", "Check the structure of a file."),
    "salvage": Verb("ytp.cli.salvage", "Copy what can be read of a damaged file into a new one."),
    "index": Verb("ytp.cli.index", "How far the index of a file goes; make it anew."),
    "roll": Verb("ytp.cli.roll", "The files of a rolling log."),
    "perf": Verb("ytp.cli.perf", "Measure writing, reading and the way there and back."),
    "doctor": Verb("ytp.cli.doctor", "Look at what is installed and whether it works here."),
    "serve": Verb("ytp.cli.serve", "Open a bus to browsers, devices, terminals and other hosts.", extra="net"),
    "demo": Verb("ytp.cli.demo", "Several processes on one bus, live, every message counted."),
}
DOORS = {
    "umq": Verb("ytp.umq.cli", "Messages for browsers and apps.", "cli", "net"),
    "utp": Verb("ytp.utp.cli", "Topics for devices.", "cli", "net"),
    "yuan": Verb("ytp.yuan.cli", "Services between terminals.", "cli", "net"),
    "yamz": Verb("yamz.cli", "Find publishers on other hosts.", "cli", "zmq"),
}


class LazyGroup(GuardedGroup):
    """Commands by name from the tables above; their modules stay unloaded until one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *DOORS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name) or DOORS.get(cmd_name)
        if verb is None:
            return None
        try:
            module = importlib.import_module(verb.module)
        except ImportError as error:
            raise Failure(
                f"'ytp {cmd_name}' can not be loaded: {error}. "
                f"If a package is missing: pip install 'ytp[{verb.extra}]'"
            ) from error
        command: click.Command = getattr(module, verb.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, (VERBS.get(name) or DOORS[name]).summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Names and summaries from the tables: completing must not load every verb.
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=(VERBS.get(name) or DOORS[name]).summary) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="ytp")
def cli() -> None:
    """Messages between processes, kept in a memory-mapped log."""
