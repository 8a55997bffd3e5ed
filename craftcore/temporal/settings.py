"""Alias of `craftcore.config.temporal_settings`, which a settings file reads too."""

from craftcore.config.temporal_settings import TemporalSettings as TemporalSettings
