"""Print `--help` with the options in groups, as the configuration has them."""

from typing import Any

from typer.core import TyperArgument, TyperCommand


class GroupedHelp(TyperCommand):
    """List a command's options under their panels. Arguments come first, and its own `--help` last."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                others = "Arguments" if isinstance(parameter, TyperArgument) else "Options"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or others, []).append(record)
        for title in sorted(sections, key=lambda title: (title != "Arguments", title == "Options")):
            with formatter.section(title):
                formatter.write_dl(sections[title])
