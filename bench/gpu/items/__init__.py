"""The items, a file a theme: functions that take `Figures` and fill them."""
