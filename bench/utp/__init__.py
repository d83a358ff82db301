"""uTP against mosquitto (aiomqtt) and nats-server (nats-py), all on loopback in one interleaved run."""
