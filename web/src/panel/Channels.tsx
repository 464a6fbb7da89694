/** Where the thread goes on beside this page. */
import { useEffect, useState } from "preact/hooks";
import { call, type Place, threadPath } from "../api";
import type { Conversing } from "../chat/conversation";

export function Channels({ talk }: { talk: Conversing }) {
  const [places, setPlaces] = useState<Place[]>([]);
  const { stateKey, id } = talk.thread;
  useEffect(() => {
    if (!id) return;
    call<{ places: Place[] }>("GET", `${threadPath(stateKey)}/places`).then(
      (answer) => setPlaces(answer.places),
      () => undefined, // Nothing is shown then, as where nothing is bound.
    );
  }, [stateKey, id, talk.facts]);
  if (!places.length) return null;
  return (
    <section>
      <h3>Places</h3>
      <ul class="places" aria-label="Places where this thread goes on">
        {places.map((place) => (
          <li key={`${place.surface} ${place.place}`}>
            <span class="surface">{place.surface}</span> {place.label ?? place.place}
          </li>
        ))}
      </ul>
    </section>
  );
}
