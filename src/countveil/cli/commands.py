"""The classes of every command: an option that takes one value and is given twice is refused, not half ignored."""

from __future__ import annotations

from collections import Counter

import click


class Command(click.Command):
    """A command that refuses an option given twice; flags too, since --prices --no-prices says nothing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion in a shell refuses nothing
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(given).items():
                if isinstance(parameter, click.Option) and times > 1 and not parameter.multiple:
                    names = " or ".join((*parameter.opts, *parameter.secondary_opts))
                    raise click.UsageError(f"{names} is given {times} times; give it once.", ctx)
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """A group whose commands and groups are of these classes too."""

    command_class = Command
    group_class = type
