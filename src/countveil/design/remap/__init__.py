"""Never-negative counts by a signed law followed by a map f: the released count is f(n + Z).

designer         the designer for policy nonnegative, method remap
map_program      the map of least error within a given bias, by linear program
pulls            how far small outcomes are pulled down to cancel the bias
wide_map         the map of wide laws: one fixed integer for every outcome
postprocessing   `countveil nonnegative`: a map for an existing signed mechanism
"""
