-- What failed lately is told by the verdict of `craftcore status`: it is found without a walk through what is over.
CREATE INDEX triggers_failed ON triggers (settled_at) WHERE status = 'FAILED';
