"""TVM's RPC: a tracker hands out two machines, which run the library with its regions."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax, rpc
from tvm.rpc.tracker import Tracker

from tests.relax.functions import images, module, several_outputs
from tests.relax.nets import OPTIONS, assert_equal, built, flat, run
from tinyai.relax import partition_for_tinyai

KEY, MACHINES = "machine", 2


def test_two_machines_of_a_tracker_run_a_library_with_regions(tmp_path: Path) -> None:
    executable = built(partition_for_tinyai(module(several_outputs), rounding="onnx", **OPTIONS))
    executable.export_library(str(tmp_path / "net.so"))
    (image,), wanted = images(), run(executable, images())
    tracker = Tracker("127.0.0.1", port=9190, port_end=9290)
    place = ("127.0.0.1", tracker.port)
    servers = [
        rpc.Server("127.0.0.1", port=9300, port_end=9400, key=KEY, tracker_addr=place)
        for _ in range(MACHINES)
    ]
    try:
        known = rpc.connect_tracker(*place)
        sessions = [known.request(KEY, session_timeout=60) for _ in range(MACHINES)]
        for session in sessions:
            session.upload(str(tmp_path / "net.so"))
            machine = relax.VirtualMachine(session.load_module("net.so"), session.cpu())
            machine.set_input("main", tvm.runtime.tensor(image, session.cpu()))
            machine.invoke_stateful("main")
            assert_equal(flat(machine.get_outputs("main")), wanted)
    finally:
        for each in (*servers, tracker):
            each.terminate()
