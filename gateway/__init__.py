"""The application: composition, upstream client, stores, admin plane, command line. The only place with sockets."""
