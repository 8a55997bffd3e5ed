"""From `MODULE:APP` on the command line to the App it names, or one line that says why not."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from craftcore.errors import ConfigInvalid, CraftcoreError
from craftcore.registry.registry import Registry

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def import_app(named: str) -> Registry:
    """Return the App that `MODULE:APP` names; `MODULE` alone means its `app`, or the only App in it.

    Modules are looked for in the current directory first. Raises ConfigInvalid.
    """
    module_name, _, attribute = named.partition(":")
    if not _DOTTED.fullmatch(module_name) or module_name.endswith(".py"):
        raise ConfigInvalid(f"{named!r:.200} names no app; give MODULE:APP{_stem_hint(module_name, attribute)}")
    module = _import(module_name)
    apps = [name for name, value in vars(module).items() if isinstance(value, Registry)]
    if not attribute:
        attribute = apps[0] if len(apps) == 1 and "app" not in apps else "app"
    if attribute not in vars(module):
        raise ConfigInvalid(f"{module_name} has no {attribute!r:.80}{_suggestion(module_name, apps)}")
    app = vars(module)[attribute]
    if isinstance(app, Registry):
        return app
    named = f"{module_name}:{attribute}"
    if isinstance(app, type) and issubclass(app, Registry):
        raise ConfigInvalid(f"{named} is the class App, not an App{_suggestion(module_name, apps)}")
    if inspect.isroutine(app):
        advice = (
            _suggestion(module_name, apps) if apps else f": add a line app = {attribute}(), and give {module_name}:app"
        )
        raise ConfigInvalid(f"{named} is a function, not an App{advice}")
    raise ConfigInvalid(f"{named} is of type {type(app).__name__}, not an App{_suggestion(module_name, apps)}")


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ConfigInvalid(_load_failure(name, error)) from error
        near = get_close_matches(error.name, _modules_of(Path(here)), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigInvalid(f"no module is named {error.name}, neither installed nor in {here}{hint}") from error
    except (Exception, SystemExit) as error:
        raise ConfigInvalid(_load_failure(name, error)) from error


def _load_failure(name: str, error: BaseException) -> str:
    """Return the last line of the traceback and the last place in it that belongs to user code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{name} cannot be imported: {error.msg} ({error.filename}:{error.lineno})"
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)] or frames
    kind = "" if isinstance(error, CraftcoreError) else f"{type(error).__name__}: "
    text = "; ".join(" ".join(line.split()) for line in str(error).splitlines())
    return f"{name} cannot be imported: {kind}{text} ({theirs[-1].filename}:{theirs[-1].lineno})"


def _modules_of(folder: Path) -> list[str]:
    """Return the names that could be imported from a folder."""
    files = [path.stem for path in folder.glob("*.py")]
    return files + [path.parent.name for path in folder.glob("*/__init__.py")]


def _stem_hint(module: str, attribute: str) -> str:
    stem = module.removesuffix(".py").replace("/", ".").strip(".")
    return f", for example {stem}:{attribute or 'app'}" if module.endswith(".py") and _DOTTED.fullmatch(stem) else ""


def _suggestion(module: str, names: list[str]) -> str:
    return f"; did you mean {module}:{names[0]}?" if names else f'; {module} makes none: add app = App("{module}")'
