"""Mechanisms: laws together with the certificate measured on them. All laws are measured here, whoever proposed them.

mechanism       the only maker of a Mechanism, behind a certificate
certificate     what is measured on the integer weights: delta, eta, bias, variance, bounds
document        mechanism.json, measured again whenever it is read
intervals       confidence intervals for the true count behind a released number
cumulants       what is needed of every law to bound the error of a sum of released cells
sum_bias        how far the sum of many released cells is off on average
sampler_audit   an empirical check of the running sampler
"""
