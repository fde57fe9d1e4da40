"""Where trials run: a port that is free, and devices that nobody else uses (o: sockets, locks, the driver)."""

from collections.abc import Mapping

from fitserve.errors import UsageError
from fitserve.facts.command import Launch, shown
from fitserve.facts.command_edit import without_option
from fitserve.facts.find_launch import find_launch
from fitserve.fix.options import Options
from fitserve.report.record import Record
from fitserve.trial.address import is_free, read_address, with_free_port
from fitserve.trial.devices import Probe, lock_keys, probe_for
from fitserve.trial.elsewhere import not_ended_from_here, refuse_running_service
from fitserve.trial.locks import Locks, lock_folder
from fitserve.trial.progress import Progress
from fitserve.trial.vacancy import Vacancy, blocked


def checked_launch(launch: Launch, environ: Mapping[str, str], progress: Progress) -> Launch:
    """The launch as the first trial will start it: on a free port, where a client can reach it.

    Raises:
        MachineError: the port is taken.
        UsageError: nothing could reach the server, or it could be started only once.
    """
    if launch.container is not None and launch.container.keeps_its_name:
        raise UsageError(
            "a second container could not have the name of the first",
            where=shown(launch.argv, launch.env),
            hint="leave out --name, or add --rm",
        )
    refuse_running_service(launch, environ)
    ready = with_free_port(launch, environ)
    address = read_address(ready, environ)
    if address.url is None:
        raise UsageError(
            "the server could not be reached from this machine, so nothing could be proven",
            where=shown(launch.argv, launch.env),
            hint=f"publish its port, as in docker run -p {address.port}:{address.port}, and leave out --uds",
        )
    if foreign := not_ended_from_here(launch):
        progress.note(foreign)
    if ready != launch:
        progress.note(f"port {read_address(launch, environ).port} is taken: using --port {address.port}")
    return ready


class Site:
    """The port and the devices of one run.

    Attributes:
        probe: how the devices are asked while a trial runs; None where it sees none.
    """

    def __init__(
        self, record: Record, *, options: Options, progress: Progress, environ: Mapping[str, str]
    ) -> None:
        self.options = options
        self.progress = progress
        self.environ = environ
        self.probe: Probe | None = None
        self._command = record.command
        self._is_shared = record.kind == "demo"
        self._locks = Locks(record.run, lock_folder(environ))
        self._vacancy: Vacancy | None = None

    def on_free_port(self, launch: Launch) -> Launch:
        """The launch on a free port: one that we chose may be changed again, the user's own may not.

        Raises:
            MachineError: somebody has taken the user's port.
        """
        asked = find_launch(self._command, self.environ)
        if read_address(asked, self.environ).port_given:
            return with_free_port(launch, self.environ)
        address = read_address(launch, self.environ)
        if is_free(address.host, address.port):
            return launch
        again = with_free_port(without_option(launch, "port"), self.environ)
        self.progress.note(
            f"port {address.port} is taken: using --port {read_address(again, self.environ).port}"
        )
        return again

    def take_devices(self, launch: Launch, version: str | None) -> str | None:
        """Hold the devices, and wait until what was used there has been given back.

        Args:
            launch: what is to be started.
            version: the release, where it is known.

        Returns:
            Why it cannot be started; None where it can.

        Raises:
            MachineError: another fitserve holds a device.
        """
        self.probe = probe_for(launch, self.environ)
        if not self._is_shared:
            self._locks.hold(lock_keys(self.probe), self.options.wait_seconds, self.progress.note)
        if self._vacancy is None:
            self._vacancy = Vacancy(self.probe)
            return None
        taken = self._vacancy.wait(self.options.free_seconds, self.progress.note)
        for each in taken:
            self.progress.note(each.words)
        too_full = blocked(launch, taken, version)
        return None if too_full is None else too_full.words

    def release(self) -> None:
        """Let go of the devices."""
        self._locks.release()
