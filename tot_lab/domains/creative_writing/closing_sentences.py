"""The closing sentences of the built-in creative writing tasks, four per task.

They were written for this project. The sentences of one task are unrelated, so that a passage needs a plan.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def closing_sentences() -> tuple[tuple[str, ...], ...]:
    """Return the four sentences of each task, in the order of the tasks."""
    return tuple(tuple(block.split("\n")) for block in _WRITTEN.strip().split("\n\n"))


_WRITTEN = """
The lighthouse keeper had never learned to swim.
Somebody had painted all the doors of the street blue overnight.
She kept the receipt for nineteen years.
In the end it was the goat that found the way home.

The elevator stopped between the floors of the museum and nobody pressed the bell.
His grandmother counted in a language that he did not know.
There were more umbrellas than people at the wedding.
The recipe asked for exactly one grain of salt.

A tortoise crossed the runway at noon.
He wrote the letter on the back of a train ticket.
The choir went on singing after the lamps went out.
Nobody in the village owned a clock that was right.

The map was drawn by someone who had never been there.
Her left shoe squeaked only on Sundays.
Five strangers agreed at once about the soup.
The snow began as soon as the last tent was folded.

The piano came down the stairs by itself.
Every postcard that he sent arrived before he did.
The mayor fed the ducks and said nothing.
It takes eleven minutes to boil an ostrich egg in that kitchen.

The bakery sold its last loaf to a dog.
I have never trusted a bridge with a name.
The twins had stopped finishing each other's sentences.
Behind the waterfall somebody had left a chair.

The astronaut missed the smell of wet pavement.
All the keys on the ring opened the same drawer.
His beard was older than the school.
The ferry leaves whether or not the ferryman is on board.

They named the storm after the librarian.
The orange rolled all the way to the harbour.
You can hear the mine if you put your ear to the church wall.
My uncle never explained the second telephone.

The bees had moved into the violin case.
On the third day the referee apologised.
She could fold a shirt in the time it takes to sneeze.
The desert was quieter than the photograph of it.

The dentist collected stamps from countries that are gone.
A single red kite hung over the prison yard.
He had promised to return the ladder in spring.
The answer was printed upside down under the crossword.

The statue's hand was warmer than the air.
Rain fell on one side of the street only.
The cook had thrown away the wrong pot.
At midnight the goldfish was still looking at the door.

The professor began every lecture with an apology to the moon.
There was a second staircase behind the wardrobe.
The sheep had learned to open the gate.
I sold my bicycle for a bag of cherries.

The orchestra tuned to the sound of the refrigerator.
No two maps agree on where the river ends.
The boy asked for his shadow back.
She laughed so hard that the judge put down his pen.

The last bus was driven by a man in a dinner jacket.
Moss grew on the north side of the television.
Her name was carved into the wrong tree.
The fishermen voted against the sea.

A letter for the former tenant arrived every Tuesday.
The mountain looked smaller from the top.
He whistled so that the dark would know where he was.
The pumpkin won a prize for honesty.

The clown's car would not start.
Under the carpet lay a carpet of better quality.
The nurse spoke four languages and used none of them.
By morning the chessboard had one pawn too many.

The secret of the paint is goat's milk.
We were told to bring our own echo.
The train passed through the garden without slowing down.
Her shadow arrived at the meeting on time.

The barber knew how the war would end.
A peacock slept on the roof of the bank.
The soup tasted of a holiday long ago.
Nobody had told the volcano about the holiday.

The button fell off at the worst moment of the speech.
There is a village where they greet each other by the weather.
The parrot would not repeat what it had heard.
The old road is still there under the lake.

The thief left the house tidier than he found it.
All winter the swing moved on its own.
The interpreter paused and then said something else.
The smallest door was the only one that was locked.
"""
