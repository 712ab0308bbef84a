"""The built-in mini crosswords: squares in which every row and column is a word.

The clues were written for this project and are not from published puzzles. Therefore models have not seen
them with their answers, and they may be redistributed freely. The squares were found by a search over English
words that are frequent according to wordfreq.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Puzzle(NamedTuple):
    """A filled mini crossword."""

    rows: tuple[str, ...]
    """The five words across."""

    clues: tuple[str, ...]
    """Ten clues, h1 to h5 and then v1 to v5."""

    @property
    def words(self) -> tuple[str, ...]:
        """The ten words in the order of the clues."""
        return (*self.rows, *("".join(column) for column in zip(*self.rows, strict=True)))


@lru_cache(maxsize=1)
def puzzles() -> tuple[Puzzle, ...]:
    """Return all built-in puzzles, in the order of their numbers."""
    made = []
    for block in _WRITTEN.strip().split("\n\n"):
        across = [line.partition(": ") for line in block.split("\n")]
        made.append(Puzzle(tuple(word for word, _, _ in across[:5]), tuple(clue for _, _, clue in across)))
    return tuple(made)


_WRITTEN = """
scarf: Woollen thing to wind around a cold neck
polar: Like the bears and the ice at the top of the world
alone: With nobody else in the room
rouge: Red powder for the cheeks
ended: Came to a close
spare: Kind of tyre in the boot of a car
colon: Two dots, one above the other, before a list
aloud: How to read a story to a child at bedtime
range: Row of mountains
freed: Let out of the cage

cliff: Steep rock face above the sea
renal: Having to do with the kidneys
imply: Say without quite saying it
mouse: Clicker next to a keyboard
enter: Go in by the door
crime: What a detective looks into
lemon: Sour yellow fruit
input: What goes into a machine
false: Not true
flyer: Paper about a concert, handed out in the street

thumb: Short finger that a hitchhiker sticks out
rural: Of the countryside
amino: Kind of acid that proteins are built of
panic: Sudden fear that empties a theatre
sneak: Move on tiptoe so as not to be caught
traps: They are baited and set for mice
human: You, but not your dog
urine: Sample that a doctor may ask for in a cup
mania: Wild craze
block: Child's wooden cube for building

scare: Shout "Boo!" behind somebody's back
haven: Safe place for ships or refugees
about: More or less, before a number
raise: More pay for the same job
elder: Older one of two brothers
share: Give half of your sandwich away
cabal: Small group of secret plotters
avoid: Keep well away from
reuse: Wash a jar and fill it again, say
enter: Key that sends off what you typed

lapse: Short failure of memory
arena: Place where gladiators fought
sonar: Submarine's way of seeing by sound
email: Message that needs no stamp
rally: Long exchange of shots in tennis
laser: Source of the narrow beam in a DVD player
aroma: What fresh coffee fills the kitchen with
penal: Having to do with punishment by law
snail: Slow animal that carries its house
early: Before the agreed time

dated: No longer in fashion
other: "On the ___ hand …"
glare: Angry stare
mania: Excessive enthusiasm, as for tulips in old Holland
asked: Put a question
dogma: Belief that is not to be doubted
atlas: Book full of maps
thank: Show that you are grateful to
eerie: Strange and a little frightening
dread: Look forward to with great fear

salad: Bowl of lettuce and tomatoes
opera: Drama in which everybody sings
raven: Big black bird, like the one that said "Nevermore"
trend: What a line through the data shows
stray: Dog without a home
sorts: Puts in order
apart: Not together
lever: Bar to lift a heavy stone with
arena: Big hall for rock concerts and hockey games
dandy: Man who cares too much for his clothes

blame: Say that it was somebody's fault
later: Not now, but some time
abode: House, to a poet
sonic: Of sound, as a boom behind a fast jet
treat: Biscuit for a good dog
blast: Big explosion
labor: Hard work, in American spelling
atone: Make up for one's sins
media: Press, radio and television
erect: Put up, as a monument

beats: Drummer's output
orbit: Path of the moon
aroma: Pleasant smell, as of spices
rover: Vehicle that drives about on Mars
dress: What a bride chooses with care
board: Get on a train
error: Mistake
above: Higher than
times: "Two ___ three is six"
stars: They twinkle at night

flame: Top of a burning candle
lager: Pale cold beer
abide: Put up with
relic: Saint's bone kept in a church
elect: Choose by ballot
flare: Signal light fired from a lifeboat
label: Sticker on a jar of jam
agile: Quick on one's feet, like a goat
medic: Soldier who treats the wounded
erect: Upright

those: Not these, but the ones over there
relax: Stretch out and rest
alibi: Proof of having been elsewhere
dives: Jumps head first into the pool
exert: Use, as one's strength
trade: Buying and selling
helix: Shape of a corkscrew
olive: Small fruit in a Greek salad
saber: Curved sword of a cavalryman, in American spelling
exist: Be

based: "___ on a true story"
ultra: Extremely, as a prefix
spear: Long pole with a point for hunting
these: Not those, but the ones here
sales: Shop's times of low prices
busts: Statues of head and shoulders
alpha: First of the Greek letters
steel: Metal of knives and bridges
erase: Rub out what was written in pencil
dares: Has the courage to

sharp: Good at cutting
tenor: High male voice in a choir
argue: Quarrel with words
colts: Young male horses
knees: Joints between hips and ankles
stack: Pile of plates
heron: Grey bird that stands in shallow water waiting for fish
angle: What a protractor measures
route: Way on a map from here to there
press: Push a button

plans: Drawings of a house to be built
limit: Speed that a road sign shows
unite: Join together as one
genre: Western or comedy, for a film
snoop: Look around in other people's drawers
plugs: They go into sockets
linen: Cloth made from flax
amino: ___ acid
nitro: Explosive, in short
steep: Hard to climb, as a hill

wasps: Striped insects that come to a picnic
await: Stay until somebody comes
tally: Count kept by strokes in groups of five
troll: Creature under a bridge in fairy tales
sense: Sight or hearing
watts: Units on a light bulb
aware: Knowing that it is so
salon: Where to have one's hair done
pills: What a pharmacist counts out
style: Manner of painting or writing

shame: Feeling that makes one blush
tumor: Growth that a surgeon takes out, in American spelling
amour: Secret love affair, from the French
rinse: Wash the soap off
edged: Moved along little by little
stare: Look with wide eyes for a long time
humid: Like the air in a rain forest
among: In the middle of, as friends
mouse: Prey of a cat
erred: Was wrong

blast: Word said by an annoyed Englishman
lance: Weapon of a jousting knight
organ: Heart or liver
overt: Done in the open
marsh: Wet land where reeds grow
bloom: Open up, as a flower
larva: Caterpillar, to a scientist
anger: Strong feeling that makes people shout
scars: Marks that old wounds leave
tenth: Last of ten in line

camps: Sets of tents
opera: "Carmen", for one
until: Up to the time when
react: Respond, as two chemicals in a tube
tales: Stories such as those of the brothers Grimm
court: Place for a judge, or for tennis
apnea: Sleeper's trouble with breathing
metal: Iron or copper
price: What a tag in a shop shows
salts: Makes food last, as one does with cod

split: Chop wood with an axe
urine: What kidneys make
given: Handed over as a present
adept: Very skilled
rests: Silent signs in music
sugar: Sweet white stuff for tea
pride: Family of lions
lives: A cat has nine
inept: Clumsy and without skill
tents: Campers sleep in them

flesh: What is between skin and bone
latte: Coffee with much milk
other: Remaining one of two
ahead: In the lead
terms: Parts of a school year
float: Stay on top of the water
lathe: Machine that turns wood to shape it
ether: Old means to put patients to sleep
steam: It comes out of a boiling kettle
herds: Groups of cows or elephants

black: Colour of coal
radon: Radioactive gas that collects in cellars
erode: Wear away, as wind does with rock
agree: Be of the same opinion
deeds: Actions, good or bad
bread: It comes in loaves
large: L, on a shirt
adore: Love very much
coded: Wrote a program
knees: People go down on them to propose

panda: Black and white bear that eats bamboo
again: One more time
wring: Twist a wet towel
never: At no time
seedy: Shabby and not quite respectable
pawns: Eight small pieces at the start of chess
agree: Say yes
naive: Too trusting
dined: Ate in the evening
angry: Red in the face and shouting

grand: Large kind of piano
rotor: What turns on top of a helicopter
adobe: Brick of mud dried in the sun
sells: Gives for money
poles: Skier's pair of sticks
grasp: Hold firmly in the hand
rodeo: Show where cowboys ride wild horses
atoll: Ring of coral around a lagoon
noble: Like a duke or a count
dress: Put clothes on

smash: Break into a thousand pieces
nacho: Chip under melted cheese
onion: It makes the cook cry
undue: More than is right
tasty: Good to eat
snout: Nose of a pig
manna: Food from heaven in the desert
acids: They turn litmus paper red
shout: Speak as loudly as you can
honey: What bees make
"""
