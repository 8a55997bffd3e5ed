-- What a person has to tell of an action in doubt that happened: its task goes on with a result of that type.

ALTER TABLE activity_log ADD COLUMN result_shape TEXT;    -- the JSON Schema of its result; NULL: it needs none
