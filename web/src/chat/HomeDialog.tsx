/** "Continue on my phone": makes the thread the home thread, and shows which linked accounts continue it. */
import { useEffect, useState } from "preact/hooks";
import { errorText, type Thread } from "../api";
import { useCell } from "../cell";
import { areNewThreadsHome, homeId, loadHome, makeHome, setNewThreadsHome } from "../home";
import { Links } from "../panel/Channels";
import { Dialog } from "../ui/Dialog";
import { IconButton } from "../ui/IconButton";
import { toast } from "../ui/toasts";

const failed = (error: unknown) => toast(errorText(error), { kind: "error" });

export function HomeButton({ thread }: { thread: Thread }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <IconButton icon="phone" label="Continue on my phone" aria-haspopup="dialog" onClick={() => setOpen(true)} />
      {isOpen && <HomeDialog thread={thread} onClose={() => setOpen(false)} />}
    </>
  );
}

function HomeDialog({ thread, onClose }: { thread: Thread; onClose: () => void }) {
  const isHome = useCell(homeId) === thread.id;
  useEffect(() => void loadHome().catch(failed), []);
  return (
    <Dialog title="Continue on my phone" onClose={onClose}>
      <div class="home">
        {isHome ? (
          <p role="status">This is your home thread: your private chats with the bot continue it.</p>
        ) : (
          <>
            <p>
              Your private chats with the bot will continue this thread from your next message on. Chats in channels and
              groups stay as they are.
            </p>
            <div>
              <button
                type="button"
                class="button button-primary"
                onClick={() => void makeHome(thread.stateKey).catch(failed)}
              >
                Continue this thread there
              </button>
            </div>
          </>
        )}
        <Links />
        <NewThreads />
      </div>
    </Dialog>
  );
}

function NewThreads() {
  const [isOn, setOn] = useState<boolean | null>(null);
  useEffect(() => void areNewThreadsHome().then(setOn, failed), []);
  const change = (wanted: boolean) => {
    setOn(wanted);
    setNewThreadsHome(wanted).catch((error: unknown) => {
      failed(error);
      setOn(!wanted);
    });
  };
  return (
    <label class="switch">
      <input
        type="checkbox"
        checked={isOn ?? false}
        disabled={isOn === null}
        onChange={(event) => change(event.currentTarget.checked)}
      />
      Do this for every thread that I begin on this page
    </label>
  );
}
