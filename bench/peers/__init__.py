"""The contestants; each module has the roles ping, echo, source and sink, as far as its system has them."""
