"""The mechanisms that users would pick instead of ours, as integer columns measured by the same exact code."""
