"""The clinic: healthy trainings and planted faults, by which the doctor is calibrated and judged.

datasets, networks, families   what a patient is made of
patients                       healthy trainings, drawn from families
faults, faults_*               what can be wrong with them, one file for each stage of an examination
training                       a plain training of a patient, by which health and harm are shown
health                         shows that the healthy are healthy and that each fault does harm
run, calibrate, rates, peers   the doctor over patients, healthy ranges, error rates, other checkers
"""
