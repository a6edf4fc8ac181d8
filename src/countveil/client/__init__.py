"""A remote service: `connect` offers what a Curator offers, over HTTP.

connection     the methods of a Curator, as HTTP requests
publications   published editions, downloaded and checked
exchange       requests with the key, retries, refusals as errors
transport      HTTP requests to one address, over connections that are kept open
responses      reads responses of a service strictly, and turns refusals into the errors that a Curator raises
"""
