"""How does a whole Airflow run on one machine, for the demo and for tests, and how does all of it end again?

    settings   where its folder lies and which settings it runs with
    processes  start, wait until healthy, end
    marked     which processes descend from us, even when their parents are gone
    api        a few calls of Airflow's REST interface

Not an installation for a team: one user, plain passwords in a private folder, and the loopback address for all but
Airflow's own log servers, which listen everywhere and answer signed requests only.
"""

from __future__ import annotations
