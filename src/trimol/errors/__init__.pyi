from trimol.errors._bracket import Bracket as Bracket
from trimol.errors._conflict import ConflictOverRuns as ConflictOverRuns
from trimol.errors._conflict import conflict_over_runs as conflict_over_runs
from trimol.errors._estimate import Estimate as Estimate
from trimol.errors._estimate import estimate as estimate
from trimol.errors._measure import Errors as Errors
from trimol.errors._measure import measure as measure
