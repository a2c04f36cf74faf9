-- Five runs as version 1 of the store kept them: one new, one running (its second attempt is live, a checkpoint is
-- pending, an epoch open), one failed, one terminating, one finished. Goes into a store that has migration 0001 alone.

INSERT INTO runs VALUES
    ('00000000-0000-4000-8000-000000000002', 'running', 'team.km:km', '{"iteration": "km", "operators": {"x": {"code": "00", "kind": "value", "name": "x", "role": "operator", "inputs": [], "finishes": false}, "y": {"code": "00", "kind": "frame", "name": "y", "role": "operator", "inputs": [], "finishes": false}, "points": {"code": "00", "kind": "data", "name": "points", "role": "data", "inputs": [], "finishes": false}, "scaled": {"code": "00", "kind": "buckets", "name": "scaled_points", "role": "operator", "inputs": [], "finishes": false}, "centroids": {"code": "00", "kind": "value", "name": "centroids", "role": "variable", "inputs": [], "finishes": false}}}', '{"k": 3, "deep": true, "name": "ä ''quoted'' %", "limit": null, "ratio": 0.1}', '/state', 16, NULL, 'RUNNING', 6, 2, 0, 3, NULL, NULL, NULL, NULL, '2026-11-21 12:48:22.041926+00', NULL),
    ('00000000-0000-4000-8000-000000000001', 'finished', 'team.km:km', '{"iteration": "km", "operators": {"x": {"code": "00", "kind": "value", "name": "x", "role": "operator", "inputs": [], "finishes": false}, "y": {"code": "00", "kind": "frame", "name": "y", "role": "operator", "inputs": [], "finishes": false}, "points": {"code": "00", "kind": "data", "name": "points", "role": "data", "inputs": [], "finishes": false}, "scaled": {"code": "00", "kind": "buckets", "name": "scaled_points", "role": "operator", "inputs": [], "finishes": false}, "centroids": {"code": "00", "kind": "value", "name": "centroids", "role": "variable", "inputs": [], "finishes": false}}}', '{"k": 3, "deep": true, "name": "ä ''quoted'' %", "limit": null, "ratio": 0.1}', '/state', 16, NULL, 'FINISHED', 25, 3, 2, 5, 'empty_feedback', NULL, '{"model": "/state/model"}', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', '2026-11-21 12:48:21.502362+00', '2026-11-21 12:48:22.006706+00'),
    ('00000000-0000-4000-8000-000000000003', 'failed', 'team.km:km', '{"iteration": "km", "operators": {"x": {"code": "00", "kind": "value", "name": "x", "role": "operator", "inputs": [], "finishes": false}, "y": {"code": "00", "kind": "frame", "name": "y", "role": "operator", "inputs": [], "finishes": false}, "points": {"code": "00", "kind": "data", "name": "points", "role": "data", "inputs": [], "finishes": false}, "scaled": {"code": "00", "kind": "buckets", "name": "scaled_points", "role": "operator", "inputs": [], "finishes": false}, "centroids": {"code": "00", "kind": "value", "name": "centroids", "role": "variable", "inputs": [], "finishes": false}}}', '{"k": 3, "deep": true, "name": "ä ''quoted'' %", "limit": null, "ratio": 0.1}', '/state', 16, NULL, 'FAILED', 6, 1, 0, 3, NULL, 'operator ''sums'' failed', NULL, NULL, '2026-11-21 12:48:22.211462+00', NULL),
    ('00000000-0000-4000-8000-000000000004', 'terminating', 'team.km:km', '{"iteration": "km", "operators": {"x": {"code": "00", "kind": "value", "name": "x", "role": "operator", "inputs": [], "finishes": false}, "y": {"code": "00", "kind": "frame", "name": "y", "role": "operator", "inputs": [], "finishes": false}, "points": {"code": "00", "kind": "data", "name": "points", "role": "data", "inputs": [], "finishes": false}, "scaled": {"code": "00", "kind": "buckets", "name": "scaled_points", "role": "operator", "inputs": [], "finishes": false}, "centroids": {"code": "00", "kind": "value", "name": "centroids", "role": "variable", "inputs": [], "finishes": false}}}', '{"k": 3, "deep": true, "name": "ä ''quoted'' %", "limit": null, "ratio": 0.1}', '/state', 16, NULL, 'TERMINATING', 5, 1, 1, 2, 'empty_feedback', NULL, NULL, NULL, '2026-11-21 12:48:22.34168+00', NULL),
    ('00000000-0000-4000-8000-000000000005', 'new', 'team.km:km', '{"iteration": "km", "operators": {"x": {"code": "00", "kind": "value", "name": "x", "role": "operator", "inputs": [], "finishes": false}, "y": {"code": "00", "kind": "frame", "name": "y", "role": "operator", "inputs": [], "finishes": false}, "points": {"code": "00", "kind": "data", "name": "points", "role": "data", "inputs": [], "finishes": false}, "scaled": {"code": "00", "kind": "buckets", "name": "scaled_points", "role": "operator", "inputs": [], "finishes": false}, "centroids": {"code": "00", "kind": "value", "name": "centroids", "role": "variable", "inputs": [], "finishes": false}}}', '{"k": 3, "deep": true, "name": "ä ''quoted'' %", "limit": null, "ratio": 0.1}', '/state', 16, NULL, 'RUNNING', 0, 0, -1, 0, NULL, NULL, NULL, NULL, '2026-11-21 12:48:22.442031+00', NULL);

INSERT INTO attempts VALUES
    ('00000000-0000-4000-8000-000000000001', 1, '00000001-0000-4000-8000-000000000001', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:21.57581+00', '2026-11-21 12:48:51.525464+00', '2026-11-21 12:48:21.801834+00', 'SUPERSEDED', 'taken over'),
    ('00000000-0000-4000-8000-000000000001', 2, '00000001-0000-4000-8000-000000000002', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:21.80718+00', '2026-11-21 12:48:51.781222+00', '2026-11-21 12:48:21.896646+00', 'FAILED', 'operator ''sums'' failed: ☃'),
    ('00000000-0000-4000-8000-000000000001', 3, '00000001-0000-4000-8000-000000000003', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:21.93025+00', '2026-11-21 12:48:51.916569+00', '2026-11-21 12:48:22.008088+00', 'FINISHED', NULL),
    ('00000000-0000-4000-8000-000000000002', 1, '00000002-0000-4000-8000-000000000001', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:22.074261+00', '2026-11-21 12:48:52.049132+00', '2026-11-21 12:48:22.155137+00', 'SUPERSEDED', 'taken over'),
    ('00000000-0000-4000-8000-000000000002', 2, '00000002-0000-4000-8000-000000000002', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:22.156854+00', '2026-11-21 12:48:52.142601+00', NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000003', 1, '00000003-0000-4000-8000-000000000001', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:22.239178+00', '2026-11-21 12:48:52.228411+00', '2026-11-21 12:48:22.326072+00', 'FAILED', 'operator ''sums'' failed'),
    ('00000000-0000-4000-8000-000000000004', 1, '00000004-0000-4000-8000-000000000001', '{"pid": 7, "host": "here", "task": null, "process_started": "1.00"}', '2026-11-21 12:48:22.374374+00', '2026-11-21 12:48:52.357392+00', NULL, NULL, NULL);

INSERT INTO epochs VALUES
    ('00000000-0000-4000-8000-000000000004', 0, 1, 'DURABLE', 1, 1, '{"records": {"centroids": 3}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:22.37497+00', '2026-11-21 12:48:22.390264+00', '2026-11-21 12:48:22.42586+00'),
    ('00000000-0000-4000-8000-000000000004', 1, 1, 'DURABLE', 1, 1, '{"records": {"centroids": 0}, "terminated_by": "empty_feedback"}', '{}', 0.25, '2026-11-21 12:48:22.395743+00', '2026-11-21 12:48:22.410728+00', '2026-11-21 12:48:22.425997+00'),
    ('00000000-0000-4000-8000-000000000001', 0, 1, 'DURABLE', 5, 5, '{"records": {"criteria": 4, "centroids": 12}, "terminated_by": null}', '{"loss": 0.001, "shift": 0.5}', 0.25, '2026-11-21 12:48:21.612023+00', '2026-11-21 12:48:21.671705+00', '2026-11-21 12:48:21.738623+00'),
    ('00000000-0000-4000-8000-000000000001', 1, 1, 'VOIDED', 1, 1, '{"records": {"centroids": 3}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:21.699423+00', '2026-11-21 12:48:21.70514+00', NULL),
    ('00000000-0000-4000-8000-000000000001', 2, 1, 'VOIDED', 1, 0, NULL, '{}', NULL, '2026-11-21 12:48:21.750884+00', NULL, NULL),
    ('00000000-0000-4000-8000-000000000001', 1, 2, 'DURABLE', 1, 1, '{"records": {"centroids": 1}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:21.823799+00', '2026-11-21 12:48:21.84315+00', '2026-11-21 12:48:21.882081+00'),
    ('00000000-0000-4000-8000-000000000001', 2, 2, 'VOIDED', 1, 0, NULL, '{}', NULL, '2026-11-21 12:48:21.883142+00', NULL, NULL),
    ('00000000-0000-4000-8000-000000000001', 2, 3, 'DURABLE', 1, 1, '{"records": {"centroids": 0}, "terminated_by": "empty_feedback"}', '{}', 0.25, '2026-11-21 12:48:21.945863+00', '2026-11-21 12:48:21.963473+00', '2026-11-21 12:48:21.994097+00'),
    ('00000000-0000-4000-8000-000000000002', 0, 1, 'DURABLE', 1, 1, '{"records": {"centroids": 3}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:22.078586+00', '2026-11-21 12:48:22.085879+00', '2026-11-21 12:48:22.101812+00'),
    ('00000000-0000-4000-8000-000000000002', 1, 1, 'VOIDED', 1, 1, '{"records": {"centroids": 3}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:22.104961+00', '2026-11-21 12:48:22.117336+00', NULL),
    ('00000000-0000-4000-8000-000000000002', 2, 1, 'VOIDED', 1, 0, NULL, '{}', NULL, '2026-11-21 12:48:22.125159+00', NULL, NULL),
    ('00000000-0000-4000-8000-000000000002', 1, 2, 'ALIGNED', 3, 3, '{"records": {"criteria": 1, "centroids": 3}, "terminated_by": null}', '{"loss": 0.5}', 0.25, '2026-11-21 12:48:22.164318+00', '2026-11-21 12:48:22.178902+00', NULL),
    ('00000000-0000-4000-8000-000000000002', 2, 2, 'OPEN', 2, 1, NULL, '{}', NULL, '2026-11-21 12:48:22.193093+00', NULL, NULL),
    ('00000000-0000-4000-8000-000000000003', 0, 1, 'DURABLE', 1, 1, '{"records": {"centroids": 3}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:22.242002+00', '2026-11-21 12:48:22.250249+00', '2026-11-21 12:48:22.272664+00'),
    ('00000000-0000-4000-8000-000000000003', 1, 1, 'ALIGNED', 1, 1, '{"records": {"centroids": 3}, "terminated_by": null}', '{}', 0.25, '2026-11-21 12:48:22.278176+00', '2026-11-21 12:48:22.284518+00', NULL);

INSERT INTO checkpoints VALUES
    ('00000000-0000-4000-8000-000000000001', 2, 1, 1, 'PERIODIC', 'ABORTED', 1, 0, NULL, NULL, NULL, 'disk full', '2026-11-21 12:48:21.749995+00', '2026-11-21 12:48:21.756639+00'),
    ('00000000-0000-4000-8000-000000000001', 3, 1, 1, 'PERIODIC', 'ABORTED', 1, 0, NULL, NULL, NULL, 'its attempt was superseded', '2026-11-21 12:48:21.770869+00', '2026-11-21 12:48:21.807873+00'),
    ('00000000-0000-4000-8000-000000000001', 1, 0, 1, 'PERIODIC', 'SUBSUMED', 4, 4, '000001-00000000/checkpoint-000001.json', 'abababababababababababababababababababababababababababababababab', 64, NULL, '2026-11-21 12:48:21.67592+00', '2026-11-21 12:48:21.73515+00'),
    ('00000000-0000-4000-8000-000000000001', 4, 1, 2, 'PERIODIC', 'SUBSUMED', 1, 1, '000001-00000000/checkpoint-000001.json', 'abababababababababababababababababababababababababababababababab', 64, NULL, '2026-11-21 12:48:21.850217+00', '2026-11-21 12:48:21.872115+00'),
    ('00000000-0000-4000-8000-000000000001', 5, 2, 3, 'FINAL', 'COMPLETED', 1, 1, '000001-00000000/checkpoint-000001.json', 'abababababababababababababababababababababababababababababababab', 64, NULL, '2026-11-21 12:48:21.964073+00', '2026-11-21 12:48:21.989771+00'),
    ('00000000-0000-4000-8000-000000000002', 1, 0, 1, 'PERIODIC', 'COMPLETED', 1, 1, '000001-00000000/checkpoint-000001.json', 'abababababababababababababababababababababababababababababababab', 64, NULL, '2026-11-21 12:48:22.092324+00', '2026-11-21 12:48:22.098777+00'),
    ('00000000-0000-4000-8000-000000000002', 2, 1, 1, 'PERIODIC', 'ABORTED', 1, 0, NULL, NULL, NULL, 'its attempt was superseded', '2026-11-21 12:48:22.121913+00', '2026-11-21 12:48:22.162285+00'),
    ('00000000-0000-4000-8000-000000000002', 3, 1, 2, 'PERIODIC', 'PENDING', 2, 1, NULL, NULL, NULL, NULL, '2026-11-21 12:48:22.180941+00', NULL),
    ('00000000-0000-4000-8000-000000000003', 1, 0, 1, 'PERIODIC', 'COMPLETED', 1, 1, '000001-00000000/checkpoint-000001.json', 'abababababababababababababababababababababababababababababababab', 64, NULL, '2026-11-21 12:48:22.258714+00', '2026-11-21 12:48:22.271371+00'),
    ('00000000-0000-4000-8000-000000000003', 2, 1, 1, 'PERIODIC', 'ABORTED', 1, 0, NULL, NULL, NULL, 'disk full', '2026-11-21 12:48:22.28978+00', '2026-11-21 12:48:22.297831+00'),
    ('00000000-0000-4000-8000-000000000003', 3, 1, 1, 'PERIODIC', 'ABORTED', 1, 0, NULL, NULL, NULL, 'its attempt ended: FAILED', '2026-11-21 12:48:22.300403+00', '2026-11-21 12:48:22.319948+00'),
    ('00000000-0000-4000-8000-000000000004', 2, 1, 1, 'FINAL', 'COMPLETED', 1, 1, '000001-00000000/checkpoint-000001.json', 'abababababababababababababababababababababababababababababababab', 64, NULL, '2026-11-21 12:48:22.411825+00', '2026-11-21 12:48:22.420772+00'),
    ('00000000-0000-4000-8000-000000000004', 1, 0, 1, 'PERIODIC', 'ABORTED', 1, 0, NULL, NULL, NULL, 'subsumed by 2', '2026-11-21 12:48:22.394727+00', '2026-11-21 12:48:22.42211+00');

INSERT INTO acknowledgements VALUES
    ('00000000-0000-4000-8000-000000000001', 1, 'centroids', '{1,1,1}'),
    ('00000000-0000-4000-8000-000000000001', 1, 'weights', '{1}'),
    ('00000000-0000-4000-8000-000000000001', 2, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000001', 3, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000001', 4, 'centroids', '{1}'),
    ('00000000-0000-4000-8000-000000000001', 5, 'centroids', '{1}'),
    ('00000000-0000-4000-8000-000000000002', 1, 'centroids', '{1}'),
    ('00000000-0000-4000-8000-000000000002', 2, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000002', 3, 'centroids', '{NULL,1}'),
    ('00000000-0000-4000-8000-000000000003', 1, 'centroids', '{1}'),
    ('00000000-0000-4000-8000-000000000003', 2, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000003', 3, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000004', 1, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000004', 2, 'centroids', '{1}');

INSERT INTO head_reports VALUES
    ('00000000-0000-4000-8000-000000000001', 0, 1, 'centroids', '{0,5,7}'),
    ('00000000-0000-4000-8000-000000000001', 0, 1, 'criteria', '{4,0}'),
    ('00000000-0000-4000-8000-000000000001', 1, 1, 'centroids', '{3}'),
    ('00000000-0000-4000-8000-000000000001', 2, 1, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000001', 1, 2, 'centroids', '{1}'),
    ('00000000-0000-4000-8000-000000000001', 2, 2, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000001', 2, 3, 'centroids', '{0}'),
    ('00000000-0000-4000-8000-000000000002', 0, 1, 'centroids', '{3}'),
    ('00000000-0000-4000-8000-000000000002', 1, 1, 'centroids', '{3}'),
    ('00000000-0000-4000-8000-000000000002', 2, 1, 'centroids', '{NULL}'),
    ('00000000-0000-4000-8000-000000000002', 1, 2, 'centroids', '{3,0}'),
    ('00000000-0000-4000-8000-000000000002', 1, 2, 'criteria', '{1}'),
    ('00000000-0000-4000-8000-000000000002', 2, 2, 'centroids', '{NULL,4}'),
    ('00000000-0000-4000-8000-000000000003', 0, 1, 'centroids', '{3}'),
    ('00000000-0000-4000-8000-000000000003', 1, 1, 'centroids', '{3}'),
    ('00000000-0000-4000-8000-000000000004', 0, 1, 'centroids', '{3}'),
    ('00000000-0000-4000-8000-000000000004', 1, 1, 'centroids', '{0}');

INSERT INTO operators VALUES
    ('00000000-0000-4000-8000-000000000001', 'points', 1, 'points', 'data', 'data', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000001', 'centroids', 3, 'centroids', 'variable', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000001', 'x', 4, 'x', 'operator', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000001', 'y', 5, 'y', 'operator', 'frame', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000001', 'scaled', 2, 'scaled_points', 'operator', 'buckets', 0, 1, '{"files": ["scaled-0.arrow"]}', '2026-11-21 12:48:21.600082+00'),
    ('00000000-0000-4000-8000-000000000002', 'points', 1, 'points', 'data', 'data', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000002', 'centroids', 3, 'centroids', 'variable', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000002', 'x', 4, 'x', 'operator', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000002', 'y', 5, 'y', 'operator', 'frame', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000002', 'scaled', 2, 'scaled_points', 'operator', 'buckets', 0, 1, '{"files": ["scaled-0.arrow"]}', '2026-11-21 12:48:22.078062+00'),
    ('00000000-0000-4000-8000-000000000003', 'points', 1, 'points', 'data', 'data', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000003', 'scaled', 2, 'scaled_points', 'operator', 'buckets', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000003', 'centroids', 3, 'centroids', 'variable', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000003', 'x', 4, 'x', 'operator', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000003', 'y', 5, 'y', 'operator', 'frame', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000004', 'points', 1, 'points', 'data', 'data', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000004', 'scaled', 2, 'scaled_points', 'operator', 'buckets', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000004', 'centroids', 3, 'centroids', 'variable', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000004', 'x', 4, 'x', 'operator', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000004', 'y', 5, 'y', 'operator', 'frame', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000005', 'points', 1, 'points', 'data', 'data', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000005', 'scaled', 2, 'scaled_points', 'operator', 'buckets', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000005', 'centroids', 3, 'centroids', 'variable', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000005', 'x', 4, 'x', 'operator', 'value', NULL, NULL, NULL, NULL),
    ('00000000-0000-4000-8000-000000000005', 'y', 5, 'y', 'operator', 'frame', NULL, NULL, NULL, NULL);

INSERT INTO pins VALUES
    ('00000000-0000-4000-8000-000000000001', 'points', 1, 'f1', '{"files": ["points.parquet"]}', '2026-11-21 12:48:21.583123+00'),
    ('00000000-0000-4000-8000-000000000001', 'labels', 1, 'f2', '{"files": ["labels.parquet"]}', '2026-11-21 12:48:21.586423+00'),
    ('00000000-0000-4000-8000-000000000002', 'points', 1, 'f1', '{"files": ["points.parquet"]}', '2026-11-21 12:48:22.074855+00');
