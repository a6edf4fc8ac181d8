"""The service: datasets, dry runs, counts, budgets and receipts over HTTP.

    app          the application: routes, what surrounds them, opening and closing
    routes       one function a route: read the request, one library call, write the answer
    models       what goes in and out, as the OpenAPI document shows it
    problems     every refusal as problem+json, with its status and code
    bodies       JSON read strictly: size, depth, duplicate names, tokens
    access       keys and roles
    clients      addresses, behind proxies too; rates: how often
    guard        what every request goes through: host, headers, keys in addresses, the log
    metrics      counters for Prometheus; nothing of the data
    work         designs in a process of their own, with a time limit
    connections  how long a client may take, how many there may be
    running      the server: where it binds, its workers, its end
    page         the web page: explore mechanisms, ask, see the budget

Over HTTP nothing is computed that the library does not compute: an edge reads, calls, and writes.
"""
