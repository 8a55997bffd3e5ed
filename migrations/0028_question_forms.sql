-- A question may have a form, which an answer has to fit, and an addressee.

ALTER TABLE questions ADD COLUMN form_json TEXT;  -- a JSON Schema of flat fields; NULL: an option, or any text
ALTER TABLE questions ADD COLUMN addressee TEXT;  -- the person or group that is asked; NULL: everybody
