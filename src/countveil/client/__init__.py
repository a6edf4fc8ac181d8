"""A remote service: `connect` offers what a Curator offers, over HTTP.

connection     the calls of a Curator, made over HTTP
publications   published editions, downloaded and checked
exchange       requests with the key, retries, refusals as errors
transport      HTTP requests to one address, over connections that are kept open
responses      responses of a service, read strictly; refusals as the errors that a Curator raises
"""
