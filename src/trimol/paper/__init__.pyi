from trimol.paper._studies import Context as Context
from trimol.paper._studies import Entry as Entry
from trimol.paper._studies import get as get
from trimol.paper._studies import names as names
from trimol.paper._studies import register as register
from trimol.paper._studies import run as run
