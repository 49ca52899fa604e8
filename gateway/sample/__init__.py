"""The sample upstream: a small honest service of documents and chat to try a gateway on. It is not a model and says so."""
