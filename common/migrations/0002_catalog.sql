-- The whole definition of a plan, values of features, terms of products and the default plan. Everything added has a
-- default, so that the statements of the binary before still work.

-- All of a revision but its name and provider products, in the words of the catalogue file (proto JSON). '{}' is a
-- revision written before this step: its features are the rows of plan_feature and everything else is the default.
-- plan_feature is derived from it and is what access decisions read.
ALTER TABLE plan
  ADD COLUMN definition jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(definition) = 'object');

-- Neither value: the feature is on.
ALTER TABLE plan_feature
  ADD COLUMN limit_value    bigint CHECK (limit_value >= 0),
  ADD COLUMN quantity_value bigint CHECK (quantity_value >= 0),
  ADD CHECK (num_nonnulls(limit_value, quantity_value) <= 1);

-- What one order of the product buys, when it is not the term of the plan.
ALTER TABLE provider_product
  ADD COLUMN term_unit  text CHECK (term_unit IN ('day', 'week', 'month', 'year')),
  ADD COLUMN term_count integer CHECK (term_count BETWEEN 1 AND 1200),
  ADD CHECK ((term_unit IS NULL) = (term_count IS NULL));

-- Whose features a subject has that nothing else grants them to. No row: no such plan.
CREATE TABLE default_plan (
  only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  plan_name text COLLATE "C" NOT NULL CHECK (octet_length(plan_name) BETWEEN 1 AND 127)
);
