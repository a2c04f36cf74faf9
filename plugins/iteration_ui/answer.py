"""What does a browser get? A page that runs no script but its own, asks this server alone, and is framed by Airflow."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader

from iteration_lib.errors import (
    CheckpointNotFoundError,
    OutcomeUnknownError,
    RunLockedError,
    RunNotFoundError,
    StatementCancelledError,
    StoreUnavailableError,
    StoreUnusableError,
    StoreVersionError,
)
from iteration_ui.address import page_path, run_page
from iteration_ui.lookup import NothingToShowError, run_key_of

PROBLEM_SECONDS = 5
_MISSING = (NothingToShowError, RunNotFoundError, CheckpointNotFoundError)
_UNAVAILABLE = (StoreUnavailableError, StoreUnusableError, StoreVersionError, OutcomeUnknownError)
_SAYS_WHERE: dict[type[Exception], str] = {  # the store lies, which is not for every viewer
    RunLockedError: "Somebody else is writing to the run",
    StatementCancelledError: "The store took too long to answer",
    OutcomeUnknownError: "The store does not answer",
    StoreUnavailableError: "The store does not answer",
    StoreUnusableError: "The store cannot be used",
}

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_logger = logging.getLogger(__name__)
_FRAMING = "frame-ancestors 'self'; base-uri 'none'; form-action 'self'"


def answer_page(template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page; `refresh` among its values asks for it again after so many seconds."""
    nonce = secrets.token_urlsafe(16)
    text = _templates.get_template(template).render(nonce=nonce, home=page_path(""), **{"refresh": None, **values})
    own = f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'"
    policy = f"default-src 'none'; {own}; {_FRAMING}"
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(text, status_code=status, headers=headers)


def answer_error(request: Request, error: Exception) -> HTMLResponse:
    """Return the page that says what went wrong; where a page was asked for, it is asked for again by itself."""
    is_page = request.method == "GET"
    status = 404 if isinstance(error, _MISSING) else 503 if is_page or isinstance(error, _UNAVAILABLE) else 409
    refresh = PROBLEM_SECONDS if is_page else None
    heading = _heading(error, is_page=is_page)
    back = run_page("", run_key_of(request)) if not is_page else ""
    page = {"heading": heading, "message": _message(request, error, is_page=is_page), "back": back}
    return answer_page("problem.html", status=status, **page, title="Iteration", refresh=refresh)


def _message(request: Request, error: Exception, *, is_page: bool) -> str:
    said = next((said for kind, said in _SAYS_WHERE.items() if isinstance(error, kind)), None)
    if said is None:
        return str(error)
    _logger.warning("event=page_refused run_key=%r error=%s", run_key_of(request), error)
    return f"{said}; the API server's log has the details.{' This page asks again.' if is_page else ''}"


def _heading(error: Exception, *, is_page: bool) -> str:
    if is_page:
        return "Nothing to show" if isinstance(error, _MISSING) else "This cannot be shown now"
    is_known = isinstance(error, RunLockedError) or not isinstance(error, OutcomeUnknownError)
    return "This was not done" if is_known else "Nobody can tell whether this was done"
