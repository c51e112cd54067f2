"""The papers' figures from the simulator: their systems, their stage costs, and our schedulers."""

from simulated import epd, epd_memory, hydrainfer_figures, modserve, modserve_day, unifiedserve_figures

FIGURES = {
    **hydrainfer_figures.FIGURES,
    **epd.FIGURES,
    **epd_memory.FIGURES,
    **modserve.FIGURES,
    **modserve_day.FIGURES,
    **unifiedserve_figures.FIGURES,
}
