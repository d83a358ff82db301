"""Two hosts joined by a cable: found by broadcast, lost with the cable or the process, found again."""

from __future__ import annotations

import pytest
import yamz_hosts

pytestmark = pytest.mark.root


@pytest.fixture
def hosts(need):
    with yamz_hosts.two_hosts(need) as made:
        yield made


@pytest.fixture
def linked(hosts):
    """(host of the source, source, sink) with a link from one host to the other."""
    sink = hosts[0].start("yamz_app_peer.py", "seek", "here")
    sink.expect(event="READY")
    source = hosts[1].start("yamz_app_peer.py", "offer", "there")
    address = source.expect(event="READY")["address"]
    assert address.startswith("tcp://10.77.0.2:")
    sink.expect(event="CONNECT", address=address.partition("?")[0])
    sink.expect(event="MESSAGE")
    return hosts[1], source, sink


def test_a_host_that_is_cut_off_is_noticed_and_so_is_its_return(linked):
    there, _, sink = linked
    there.cable(False)
    gone = sink.expect(event="DISCONNECT")
    there.plug()
    back = sink.expect(event="CONNECT")
    assert back["address"] == gone["address"]
    sink.expect(event="MESSAGE")


def test_a_process_that_dies_on_the_other_host_is_noticed_and_so_is_its_successor(linked):
    there, source, sink = linked
    source.kill()
    gone = sink.expect(event="DISCONNECT")
    again = there.start("yamz_app_peer.py", "offer", "there")
    address = again.expect(event="READY")["address"].partition("?")[0]
    assert sink.expect(event="CONNECT")["address"] == address != gone["address"]
    sink.expect(event="MESSAGE")


def test_a_polite_end_on_the_other_host_is_noticed_at_once(linked):
    _, source, sink = linked
    source.close()
    sink.expect(event="DISCONNECT")


def test_a_host_without_a_cable_waits_for_it(hosts):
    """Beacons cannot be sent: the node lives, and is found as soon as there is a network."""
    here, there = hosts
    there.cable(False)
    sink = here.start("yamz_app_peer.py", "seek", "here")
    sink.expect(event="READY")
    there.plug()
    source = there.start("yamz_app_peer.py", "offer", "there")
    source.expect(event="READY")
    sink.expect(event="CONNECT")
    sink.expect(event="MESSAGE")
