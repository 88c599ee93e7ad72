"""Holds one event socket per active caller and turns sockets, lists and retries into arrivals."""
