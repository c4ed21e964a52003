# Lists a directory of $COUNT entries, which the server has created, while entries are added and
# removed.
set -eu
attach "$VERSION" /export /mnt/export
exec python3 - <<'P'
import os
count = int(os.environ["COUNT"])
d = "/mnt/export/large"
names = set(os.listdir(d)); assert names == {"entry-%06d" % i for i in range(count)}, len(names)
seen, made = [], 0
with os.scandir(d) as listing:
    for n, e in enumerate(listing):
        seen.append(e.name)
        if n % 5000 == 0:
            os.unlink(d + "/" + "entry-%06d" % (count - 1 - made)); open(d + "/new-%d" % made, "w").close(); made += 1
gone = {"entry-%06d" % (count - 1 - i) for i in range(made)}
stay = names - gone
assert len(seen) == len(set(seen)), "an entry was listed twice"
assert stay <= set(seen), "an entry that stayed was not listed"
assert set(os.listdir(d)) == stay | {"new-%d" % i for i in range(made)}
print("ok: large directory")
P
