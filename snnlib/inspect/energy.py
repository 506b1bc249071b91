"""Energy of counted operations under published models, with their assumptions."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EnergyModel:
    """Energy of each kind of operation, in picojoules.

    Args:
        name: name for `Profile.energy`.
        ac_pj: an accumulation.
        mac_pj: a multiplication and an accumulation.
        state_pj: the update of one state of one neuron in one time step.
        byte_pj: moving a byte of weights or states.
        assumptions: meaning and omissions of the numbers.
        source: publication.
    """

    name: str
    ac_pj: float
    mac_pj: float
    state_pj: float
    byte_pj: float
    assumptions: str
    source: str

    def joules(self, acs: float, macs: float, state_updates: float, traffic_bytes: float) -> float:
        """Returns the energy of these numbers of operations."""
        picojoules = acs * self.ac_pj + macs * self.mac_pj
        return (picojoules + state_updates * self.state_pj + traffic_bytes * self.byte_pj) * 1e-12


_HOROWITZ = "Horowitz, Computing's energy problem, ISSCC 2014"
_JOUPPI = "Jouppi et al., Ten lessons from three generations shaped Google's TPUv4i, ISCA 2021"
_DAVIES = "Davies et al., Loihi: a neuromorphic manycore processor with on-chip learning, IEEE Micro 2018"

_45NM = EnergyModel(
    "45nm",
    ac_pj=0.9,
    mac_pj=0.9 + 3.7,
    state_pj=0.9 + 3.7,
    byte_pj=0.0,
    assumptions="float32 arithmetic at 45 nm, 0.9 V; a multiply-accumulate per state and step; memory is free",
    source=_HOROWITZ,
)

ENERGY_MODELS: dict[str, EnergyModel] = {
    model.name: model
    for model in (
        _45NM,
        replace(
            _45NM,
            name="45nm-sram",
            byte_pj=20.0 / 8,
            assumptions="as 45nm; weights and states are moved from and to a 32 kB cache, 20 pJ per 8 bytes",
        ),
        EnergyModel(
            "45nm-int8",
            ac_pj=0.1,
            mac_pj=0.2 + 0.1,
            state_pj=3.1 + 0.1,
            byte_pj=0.0,
            assumptions="8-bit weights and inputs, sums and states of 32 bits at 45 nm; memory is free",
            source=_HOROWITZ,
        ),
        EnergyModel(
            "7nm",
            ac_pj=0.38,
            mac_pj=0.38 + 1.31,
            state_pj=0.38 + 1.31,
            byte_pj=0.0,
            assumptions="float32 arithmetic at 7 nm; a multiply-accumulate per state and step; memory is free",
            source=_JOUPPI,
        ),
        EnergyModel(
            "loihi",
            ac_pj=23.6,
            mac_pj=23.6,
            state_pj=81.0 / 2,
            byte_pj=0.0,
            assumptions=(
                "every product is a synaptic operation of 23.6 pJ, every neuron with its two states is active in every "
                "step, 81 pJ; spikes travel for free"
            ),
            source=_DAVIES,
        ),
    )
}
