-- What is stored of the events of route $1, and what the rows of its subscriptions say of them.
WITH s AS MATERIALIZED (
  SELECT s.id, s.term_no, s.event_seq
    FROM route r
    JOIN subscription s ON s.route_id = r.id
   WHERE r.name = $1)
SELECT (SELECT count(*) FROM provider_event e JOIN route r ON r.id = e.route_id
         WHERE r.name = $1 AND e.status = 'applied') AS events,
       (SELECT count(*) FROM provider_event e JOIN route r ON r.id = e.route_id
         WHERE r.name = $1 AND e.status <> 'applied') AS unapplied_events,
       (SELECT count(*) FROM subscription_fact WHERE subscription_id IN (SELECT id FROM s)) AS facts,
       (SELECT count(*) FROM payment WHERE subscription_id IN (SELECT id FROM s)) AS payments,
       (SELECT count(*) FROM payment_alias a JOIN route r ON r.id = a.route_id WHERE r.name = $1) AS payment_aliases,
       (SELECT sum(term_no) FROM s) AS terms,
       (SELECT count(*) FROM subscription_event WHERE subscription_id IN (SELECT id FROM s)) AS history,
       (SELECT sum(event_seq) FROM s) AS event_seqs,
       (SELECT sum(head_seq) FROM sink_stream WHERE subscription_id IN (SELECT id FROM s)) AS heads
