"""The service: datasets, dry runs, counts, budgets, receipts and publications over HTTP.

    app                the application: routes, error handlers, start and shutdown
    routes             one function for each route: read the request, call the library, write the response
    schemas            request and response bodies, as the OpenAPI document shows them
    problem_json       every refusal as problem+json, with its status and code
    strict_json        JSON read strictly: size, depth, duplicate names
    api_keys           the file of API keys: add, revoke and recognise them
    auth               authentication: the key of a request, its role, and its rate limit
    rate_limits        the address of a client, also behind proxies, and its rate limit
    middleware         for every request: check the host, refuse keys in addresses, add headers, write the log
    metrics            numbers for Prometheus; nothing about the data
    design_worker      designs in a separate process, with a time limit
    connection_limits  timeouts for slow clients, and the largest number of connections
    server             the server: its address, its workers, its shutdown
    publications       sends the files of published editions
    web                the web pages: explore mechanisms, ask, see the budget and what was published

The service computes nothing itself: it reads a request, calls the library, and writes the response.
"""
