"""Which web application is mounted? The pages and what acts; without pages of its own about itself."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from iteration_lib.errors import IterationError
from iteration_ui import action_routes, guard, routes
from iteration_ui.address import DAG_RUN, GROUP
from iteration_ui.answer import answer_error


def make_app() -> FastAPI:
    """Return the application; nothing of it is open that no guard stands before."""
    no_nul = Depends(guard.no_nul)
    app = FastAPI(title="Iterations", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[no_nul])
    app.add_exception_handler(IterationError, answer_error)
    app.include_router(routes.router)
    for address in (DAG_RUN, GROUP):
        app.include_router(action_routes.router, prefix=address)
    return app
