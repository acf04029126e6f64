from trimol.compare._answer import Answer as Answer
from trimol.compare._answer import decide as decide
from trimol.compare._diagnose import Diagnosis as Diagnosis
from trimol.compare._diagnose import diagnose as diagnose
from trimol.compare._spending import Spending as Spending
